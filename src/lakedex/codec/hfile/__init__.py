"""HFiles: the sorted key-value files in which the metadata table stores its records.

A file consists of data blocks, meta blocks and the parts that a reader loads on opening: root data index, meta index,
file info and a trailer of 4096 bytes. ``blocks`` has the frame of all blocks, ``index`` the content of index and data
blocks, ``trailer`` the trailer and the file info; ``reader`` and ``writer`` put them together.
"""

from lakedex.codec.hfile.blocks import Budget
from lakedex.codec.hfile.reader import Fetch, HFileReader
from lakedex.codec.hfile.writer import MAX_BLOCK_SIZE, stream_hfile, write_hfile

__all__ = ["MAX_BLOCK_SIZE", "Budget", "Fetch", "HFileReader", "stream_hfile", "write_hfile"]
