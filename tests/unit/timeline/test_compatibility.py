import pytest

from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.timeline.compatibility import require_readable, require_writable
from lakedex.timeline.table_config import TableConfig, metadata_table_properties, new_table_properties


def config(**changes: str) -> TableConfig:
    properties = new_table_properties("t", ["k"], ["p"], ["ts"], metadata_partitions=["files", "column_stats"])
    return TableConfig.from_properties({**properties, **{k.replace("__", "."): v for k, v in changes.items()}})


def test_our_own_tables() -> None:
    require_readable(config())
    require_writable(config())
    require_writable(TableConfig.from_properties(new_table_properties("t", ["a", "b"])))
    every = "bloom_filters,column_stats,files,partition_stats"
    require_writable(config(hoodie__table__metadata__partitions=every))
    require_writable(config(hoodie__table__format="native"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hoodie__table__version": "7"}, "version is 7.*half-way"),
        ({"hoodie__table__version": "5"}, "version is 5.*older"),
        ({"hoodie__table__version": "10"}, "version is 10.*newer"),
        ({"hoodie__table__version": ""}, "version is not given"),
        ({"hoodie__timeline__layout__version": "1"}, "layout is 1"),
        ({"hoodie__table__version": "6"}, "version is 6|layout is 2, not 1"),
        ({"hoodie__table__type": "APPEND_ONLY"}, "APPEND_ONLY table"),
        ({"hoodie__datasource__write__drop__partition__columns": "true"}, r"drop\.partition\.columns=true"),
        ({"hoodie__bootstrap__base__path": "/x"}, "bootstrap"),
        ({"hoodie__table__base__file__format": "ORC"}, "ORC"),
        ({"hoodie__table__multiple__base__file__formats__enable": "true"}, "several formats"),
        ({"hoodie__table__format": "iceberg"}, "iceberg"),
    ],
)
def test_neither_read_nor_written(changes: dict[str, str], message: str) -> None:
    for require in (require_readable, require_writable):
        with pytest.raises(UnsupportedFeatureError, match=message) as caught:
            require(config(**changes))
        assert caught.value.feature


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hoodie__table__partial__update__mode": "IGNORE_DEFAULTS"}, r"partial\.update\.mode=IGNORE_DEFAULTS"),
        (
            {"hoodie__table__legacy__payload__class": "org.apache.hudi.common.model.AWSDmsAvroPayload"},
            r"legacy\.payload\.class=org.*AWSDms",
        ),
        (
            {"hoodie__record__merge__property__hoodie__payload__delete__field": "op"},
            r"hoodie\.record\.merge\.property\.hoodie\.payload\.delete\.field=op",
        ),
        ({"hoodie__table__cdc__enabled": "true"}, "change data capture"),
        ({"hoodie__populate__meta__fields": "false"}, "no meta columns"),
        ({"hoodie__partition__metafile__use__base__format": "true"}, "metafiles are Parquet"),
        ({"hoodie__record__merge__mode": "CUSTOM"}, "merge mode is CUSTOM"),
        ({"hoodie__compaction__payload__class": "com.example.Mine"}, r"com\.example\.Mine"),
        ({"hoodie__record__merge__strategy__id": "1897ef5f-18bc-4557-939c-9d6a8afd1519"}, "1897ef5f"),
        ({"hoodie__compaction__record__merger__strategy": "1897ef5f-18bc-4557-939c-9d6a8afd1519"}, "1897ef5f"),
        ({"hoodie__table__keygenerator__type": "TIMESTAMP"}, "TIMESTAMP"),
        ({"hoodie__table__keygenerator__type": "CUSTOM_AVRO"}, "CUSTOM"),
        ({"hoodie__table__keygenerator__type": "USER_PROVIDED"}, "USER_PROVIDED"),
    ],
)
def test_read_only(changes: dict[str, str], message: str) -> None:
    require_readable(config(**changes))
    with pytest.raises(UnsupportedFeatureError, match=message):
        require_writable(config(**changes))


@pytest.mark.parametrize(
    "key", ["hoodie__table__metadata__partitions", "hoodie__table__metadata__partitions__inflight"]
)
@pytest.mark.parametrize(
    ("partition", "kind"),
    [
        ("record_index", "the record index"),
        ("secondary_index_by_name", "the secondary index"),
        ("expr_index_day", "the expression index"),
        ("bitmap_index", "is unknown to"),
    ],
)
def test_indexes_that_would_go_stale(key: str, partition: str, kind: str) -> None:
    table = config(**{key: f"files,{partition}"})
    require_readable(table)
    with pytest.raises(UnsupportedFeatureError, match=kind) as caught:
        require_writable(table)
    assert f"hoodie.metadata.index.drop={partition}" in str(caught.value)
    assert caught.value.feature == f"index {partition}"


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        (["a"], [], "NON_PARTITION"),
        (["a", "b"], [], "NON_PARTITION"),
        (["a"], ["p"], "SIMPLE"),
        (["a", "b"], ["p"], "COMPLEX"),
        (["a"], ["p", "q"], "COMPLEX"),
    ],
)
def test_key_generator_of_new_tables(keys: list[str], partitions: list[str], kind: str) -> None:
    properties = new_table_properties("t", keys, partitions)
    assert properties["hoodie.table.keygenerator.type"] == kind
    assert properties.get("hoodie.table.partition.fields", "") == ",".join(partitions)


def test_merging_of_new_tables() -> None:
    plain = new_table_properties("t", ["k"])
    assert plain["hoodie.record.merge.mode"] == "COMMIT_TIME_ORDERING"
    assert plain["hoodie.record.merge.strategy.id"] == "ce9acb64-bde0-424c-9b91-f6ebba25356d"
    assert plain["hoodie.compaction.payload.class"].endswith(".OverwriteWithLatestAvroPayload")
    assert "hoodie.table.ordering.fields" not in plain and "hoodie.table.precombine.field" not in plain
    one = new_table_properties("t", ["k"], ordering_fields=["ts"])
    assert one["hoodie.table.ordering.fields"] == one["hoodie.table.precombine.field"] == "ts"
    two = new_table_properties("t", ["k"], ordering_fields=["a", "b"])
    assert two["hoodie.table.ordering.fields"] == "a,b" and "hoodie.table.precombine.field" not in two
    late = new_table_properties("t", ["k"], ordering_fields=["a"], merge_mode="COMMIT_TIME_ORDERING")
    assert late["hoodie.record.merge.mode"] == "COMMIT_TIME_ORDERING"


def test_optional_properties_of_new_tables() -> None:
    properties = new_table_properties("t", ["k"], database="db", create_schema='{"a": 1}')
    assert properties["hoodie.database.name"] == "db"
    assert properties["hoodie.table.create.schema"] == '{"a": 1}'
    table = TableConfig.from_properties(properties)
    assert table.create_schema == '{"a": 1}' and table.database == "db"


def test_bad_names_and_modes() -> None:
    for name, keys, parts in (("", ["k"], []), ("t", ["a,b"], []), ("t", ["k"], ["p:q"])):
        with pytest.raises(InvalidInputError):
            new_table_properties(name, keys, parts)
    with pytest.raises(InvalidInputError, match="twice"):
        new_table_properties("t", ["k", "k"])
    with pytest.raises(OptionError, match="CUSTOM"):
        new_table_properties("t", ["k"], merge_mode="CUSTOM")
    with pytest.raises(OptionError, match="ordering field"):
        new_table_properties("t", ["k"], merge_mode="EVENT_TIME_ORDERING")
    for version in (5, 7, 10):
        with pytest.raises(UnsupportedFeatureError, match=f"version {version}"):
            metadata_table_properties("t", version)
        with pytest.raises(UnsupportedFeatureError, match=f"version {version}"):
            new_table_properties("t", ["k"], version=version)
