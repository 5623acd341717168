"""What a BI tool in Python does: arguments are the client, host and port; a line for each query in, a line of pickled
rows out for each.
"""

import base64
import pickle
import sys


def connect(client: str, host: str, port: int) -> object:
    """A cursor."""
    if client == "pyhive":
        from pyhive import hive

        return hive.connect(host, port).cursor()
    from trino.dbapi import connect

    return connect(host, port, user="test", catalog="delta", schema="default").cursor()


def plain(value: object) -> object:
    """Trino's rows, which are tuples with names, as dicts."""
    names = getattr(value, "__annotations__", {}).get("names")
    if names is not None:
        return {name: plain(item) for name, item in zip(names, value)}  # noqa: B905 as in Python 3.9
    return [plain(item) for item in value] if isinstance(value, list) else value


cursor = connect(sys.argv[1], sys.argv[2], int(sys.argv[3]))
for query in sys.stdin:
    try:
        cursor.execute(query.rstrip("\n"))
        found = cursor.fetchall()
        names = [column[0] for column in cursor.description]
        answer: object = [{name: plain(value) for name, value in zip(names, row)} for row in found]  # noqa: B905
    except Exception as error:
        answer = str(error)
    print(base64.b64encode(pickle.dumps(answer)).decode(), flush=True)
