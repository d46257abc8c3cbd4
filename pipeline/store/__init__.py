"""ClickHouse: migrations, the sink that fills the tables, named queries and read-only SQL."""
