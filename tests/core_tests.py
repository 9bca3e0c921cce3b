"""The tests with a JVM that the first ``./dev test`` runs: of each area those that say most in the shortest time.

Names are ``file``, ``file::function`` or ``file::function[row]``; the smoke tests of ``tests/spark`` are in the core too.
"""

from __future__ import annotations

SPARK = (
    "test_catalog.py::test_filters_leave_files_out_and_rows_are_exact",
    "test_catalog.py::test_columns_and_meta_columns",
    "test_catalog.py::test_a_join_leaves_files_out_while_it_runs",
    "test_catalog.py::test_time_travel",
    "test_catalog.py::test_looking_at_a_table",
    "test_catalog.py::test_errors_are_those_of_spark_or_say_what_lakedex_says",
    "test_catalog_names.py",
    "test_catalog_writes.py::test_create_table_makes_a_hudi_table",
    "test_catalog_writes.py::test_refusals",
    "test_catalog_writes.py::test_insert_is_an_upsert_where_there_is_an_ordering_column",
    "test_catalog_writes.py::test_frames_are_written",
    "test_catalog_writes.py::test_create_table_as_select",
    "test_catalog_writes.py::test_overwrites",
    "test_catalog_writes.py::test_delete",
    "test_catalog_writes.py::test_columns_change",
    "test_catalog_writes.py::test_indexes",
    "test_global_index.py",
    "test_hostile_values.py",
    "test_index_answers.py::test_an_answer_is_what_spark_would_say",
    "test_index_answers.py::test_no_job_runs_and_explain_says_who_answered",
    "test_joins.py",
    "test_jvm.py",
    "test_maintenance.py",
    "test_mor.py::test_slices_of_both_kinds",
    "test_mor.py::test_in_sql",
    "test_operations.py",
    "test_readme.py",
    "test_row_groups.py::test_a_right_choice_gives_equal_rows_from_fewer_bytes",
    "test_scan_answers.py",
    "test_schema.py",
    "test_sql.py::test_every_kind_of_query_gives_sparks_rows",
    "test_table.py",
    "test_upkeep.py",
    "test_version_six.py",
)
ORACLE = (
    "test_bitmap_java.py::test_tables_of_javas[COPY_ON_WRITE]",
    "test_global_bloom.py::test_java_and_lakedex_in_turn[partitions updated]",
    "test_incremental.py::test_writers_in_turn",
    "test_java_operations.py::test_java_undoes_our_failed_overwrite[before the completion]",
    "test_java_reads.py::test_added_column_is_null_in_older_files",
    "test_java_reads.py::test_awkward_partition_values[fields0-True]",
    "test_java_reads.py::test_composite_keys",
    "test_java_reads.py::test_every_kind_of_column[part]",
    "test_java_reads.py::test_nested_columns",
    "test_java_reads.py::test_tables_of_other_releases",
    "test_java_writes.py::test_all_types[zstd]",
    "test_java_writes.py::test_file_group_that_a_delete_emptied",
    "test_java_writes.py::test_java_undoes_our_failed_write[before the metadata]",
    "test_java_writes.py::test_we_undo_a_failed_write_of_java",
    "test_java_writes.py::test_we_write_to_tables_that_java_made[indexed]",
    "test_java_writes.py::test_writers_in_turn[partitioned]",
    "test_judges_selfcheck.py::test_all_types_survive_java_and_rust",
    "test_judges_selfcheck.py::test_java_errors_carry_the_cause_chain",
    "test_judges_selfcheck.py::test_java_runs_sql",
    "test_judges_selfcheck.py::test_order_and_spelling_do_not_matter",
    "test_judges_selfcheck.py::test_differences_are_shown",
    "test_judges_selfcheck.py::test_null_is_neither_nan_nor_zero",
    "test_mor.py::test_tables_of_hudis_own_tests",
    "test_rust.py",
    "test_services_java.py::test_cleans_in_turn",
    "test_services_java.py::test_rollbacks_in_turn",
    "test_skipping_java.py::test_upserts_of_three_generations",
    "test_upkeep_java.py::test_a_compaction_that_java_left_pending",
    "test_verbs_java.py::test_partitions_emptied_in_turn",
    "test_version_nine.py::test_a_complex_key_of_one_field",
    "test_version_six.py::test_in_turn[1.1.1-lakedex]",
)
FOLDERS = {"spark": SPARK, "oracle": ORACLE}


def is_core(folder: str, file: str, function: str, name: str) -> bool:
    """Whether the core has a test of a folder: as one of a file, as a row of a function, or by itself."""
    core = FOLDERS.get(folder, ())
    return file in core or f"{file}::{function}" in core or f"{file}::{name}" in core
