"""HFiles: the sorted key-value files in which the metadata table keeps its records.

A file is data blocks, meta blocks, and then what a reader loads on opening: root data index, meta index, file info
and a trailer of 4096 bytes. ``blocks`` holds the frame that all blocks share, ``cells`` the content of data blocks,
``index`` that of index blocks, ``trailer`` the trailer and the file info; ``reader`` and ``writer`` put them together.
"""

from lakedex.codec.hfile.blocks import Budget
from lakedex.codec.hfile.reader import Fetch, HFileReader
from lakedex.codec.hfile.writer import MAX_BLOCK_SIZE, stream_hfile, write_hfile

__all__ = ["MAX_BLOCK_SIZE", "Budget", "Fetch", "HFileReader", "stream_hfile", "write_hfile"]
