-- Creating a table fails where it exists: the one atomic step that ClickHouse offers to two that start together.
CREATE TABLE schema_migrations_lock (holder String) ENGINE = Memory
