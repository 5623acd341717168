"""Tables in an object store, written by the sink's own classes, without Spark."""

import dataclasses
import traceback

import deltalake
import pyarrow as pa
import pyarrow.fs as pa_fs
from kit.sink import Sink

from upstream.storage.folder import TableFolder

from .programs import Asked

SECRETS = {"access_key_id": "AKIDOFATEST", "secret_access_key": "never/to+be=seen", "session_token": "nor=this&one"}


@dataclasses.dataclass
class StoredSink(Sink):
    """A sink whose table is in the object store; checkpoints are on the disk."""

    address: str = ""
    storage: dict[str, str] = dataclasses.field(default_factory=dict)
    metrics: bool = True

    @property
    def given(self) -> dict[str, str]:
        given = {f"storage.{name}": value for name, value in self.storage.items()}
        given |= {"metricsLocation": f"{self.address}_metrics"} if self.metrics else {}
        return {**super().given, "path": self.address, **given}

    @property
    def place(self) -> TableFolder:
        return TableFolder(self.address, self.storage)

    def stored(self, address: str = "") -> deltalake.DeltaTable:
        return deltalake.DeltaTable(address or self.address, storage_options=self.storage)

    def table(self) -> pa.Table:
        return pa.RecordBatchReader.from_stream(self.stored().scan()).read_all()

    def objects(self) -> set[str]:
        """Everything below the table."""
        _, filesystem = self.place.place("")
        found = filesystem.get_file_info(pa_fs.FileSelector("", recursive=True))
        return {info.path for info in found if info.type == pa_fs.FileType.File}


@dataclasses.dataclass(frozen=True)
class UnreliableStore:
    address: str
    client: Asked

    def spoil(self, fault: str, times: int = 1) -> None:
        """Let so many of the next conditional puts of entries of a log end in a fault."""
        assert self.client.ask(f"{fault} {times}") == "so be it"

    def spoilt(self) -> int:
        """How many did since then."""
        return int(self.client.ask("spoilt 0"))


def as_printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
