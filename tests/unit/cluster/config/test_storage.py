"""The storage root: what is accepted, what is refused, and where a relative path lies."""

from __future__ import annotations

import pytest

from gitops.database.storage.port import StorageKind, StorageRoot, StorageRootError, parse_storage

LOCAL, S3 = StorageKind.LOCAL, StorageKind.S3


@pytest.mark.parametrize(
    ("value", "root"),
    [
        ("data", StorageRoot(LOCAL, "data", path="data")),
        (" data/// ", StorageRoot(LOCAL, "data", path="data")),
        ("/srv/x/", StorageRoot(LOCAL, "/srv/x", path="/srv/x")),
        ("/", StorageRoot(LOCAL, "/", path="/")),
        ("a:b", StorageRoot(LOCAL, "a:b", path="a:b")),
        ("file:///srv/x/", StorageRoot(LOCAL, "file:///srv/x", path="/srv/x")),
        ("file:///", StorageRoot(LOCAL, "file:///", path="/")),
        ("s3://bucket", StorageRoot(S3, "s3://bucket", bucket="bucket")),
        ("s3://bucket/", StorageRoot(S3, "s3://bucket", bucket="bucket")),
        ("s3://my.bucket-1/a/b//", StorageRoot(S3, "s3://my.bucket-1/a/b", bucket="my.bucket-1", prefix="a/b")),
    ],
)
def test_accepted(value: str, root: StorageRoot) -> None:
    assert parse_storage(value) == root
    assert parse_storage(root.text) == root


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "s3://",
        "s3:///",
        "s3:///prefix",
        "s3:/bucket",
        "s3://bucket/a//b",
        "s3://bucket/../other",
        "s3://bucket/a b",
        "s3://bucket/a%2Fb",
        "s3://bucket/é",
        "s3://bucket/.",
        "s3://user@host",
        "s3://bucket?x=1",
        "gs://bucket",
        "http://host/x",
        "S3://bucket",
        "file://",
        "file://host/x",
        "file:/x",
        "a\nb",
        "a\u202eb",
    ],
)
def test_refused(value: str) -> None:
    with pytest.raises(StorageRootError):
        parse_storage(value)


@pytest.mark.parametrize(
    ("value", "path"), [("data", "/cfg/data"), ("../x", "/x"), ("/srv", "/srv"), ("file:///srv", "/srv")]
)
def test_a_relative_root_lies_under_the_cluster_folder(value: str, path: str) -> None:
    assert parse_storage(value).local_path("/cfg") == path
