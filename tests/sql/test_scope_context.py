from kit.continuous import refused, relation


def test_names_of_with_are_known_below_it_alone():
    refused(
        "WITH a AS (SELECT 1 FROM b), b AS (SELECT * FROM trade) SELECT * FROM a",
        "there is no stream, relation or view 'b'",
    )
    refused("WITH a AS (SELECT * FROM trade), A AS (SELECT * FROM trade) SELECT * FROM a", "two subqueries of WITH")
    assert relation("WITH trade AS (SELECT sym FROM quote [NOW]) SELECT * FROM trade").schema.names == ["sym"]
