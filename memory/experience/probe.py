"""Look at a chromadb folder in a process of its own: ``python -m orienteer.memory.experience.probe FOLDER``.

A graph file that was cut or overwritten makes chromadb's core end the process by a segmentation fault. A run must not
die of its index, so a folder that was not closed in order, or that somebody else touched, is tried here first.
Exit status 0: every collection of ours can be searched.
"""

from __future__ import annotations

import sys


def search_all(folder: str) -> None:
    """Search every collection once for a few vectors."""
    import chromadb
    import numpy as np
    from chromadb.config import Settings

    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    for collection in client.list_collections():
        count, size = collection.count(), (collection.metadata or {}).get("size")
        if count and isinstance(size, int):
            # Some on one side, some on the other: the search walks different parts of the graph.
            some = np.random.default_rng(0).standard_normal((8, size)).astype(np.float32)
            collection.query(query_embeddings=some, n_results=min(20, count), include=[])


if __name__ == "__main__":
    search_all(sys.argv[1])
