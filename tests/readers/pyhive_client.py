"""What a BI tool in Python does: arguments are host and port; a line for each query in, a line of pickled rows out for each."""

from __future__ import annotations

import base64
import pickle
import sys

from pyhive import hive

cursor = hive.connect(sys.argv[1], int(sys.argv[2])).cursor()
for query in sys.stdin:
    try:
        cursor.execute(query)
        names = [column[0] for column in cursor.description]
        answer: object = [dict(zip(names, row)) for row in cursor.fetchall()]  # noqa: B905 as in Python 3.9
    except hive.OperationalError as error:
        answer = str(error)
    print(base64.b64encode(pickle.dumps(answer)).decode(), flush=True)
