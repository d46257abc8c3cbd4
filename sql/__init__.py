"""Everything rootrank says to ClickHouse, as plain SQL files: migrations, named queries, the store's own statements."""
