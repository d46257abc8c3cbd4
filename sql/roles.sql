-- The read-only user of `rootrank sql`, Grafana and other readers. Run as an administrator, with a password of your own;
-- to run it again does no harm. `rootrank` is the database name. An embedded engine has no users: its HTTP front enforces
-- the same but for the quota.
--
-- readonly = 2 lets a reader choose its own limits (Grafana sets max_execution_time on each query), within the bounds
-- below, but never write, and never change `readonly` itself. A result of more rows than that is an error, never cut
-- in silence. No table function that reads files or opens sockets is granted, and nothing of `system` that shows what
-- others ask: it stays hidden where the server's own configuration has <select_from_system_db_requires_grant> true.
CREATE ROLE IF NOT EXISTS rootrank_read;

GRANT SELECT, SHOW TABLES, SHOW COLUMNS ON rootrank.* TO rootrank_read;

-- What the query `storage` reads; they show only tables that the reader may see.
GRANT SELECT ON system.parts TO rootrank_read;
GRANT SELECT ON system.tables TO rootrank_read;
GRANT SELECT ON system.columns TO rootrank_read;

CREATE SETTINGS PROFILE IF NOT EXISTS rootrank_reader;

ALTER SETTINGS PROFILE rootrank_reader SETTINGS
    readonly = 2,
    allow_ddl = 0 CONST,
    max_execution_time = 60 MIN 1 MAX 600,
    max_memory_usage = 4000000000 MIN 1 MAX 16000000000,
    max_result_rows = 1000000 MIN 1 MAX 1000000;

CREATE USER IF NOT EXISTS rootrank_reader IDENTIFIED WITH sha256_password BY 'change-me'
    DEFAULT ROLE rootrank_read SETTINGS PROFILE 'rootrank_reader';

GRANT rootrank_read TO rootrank_reader;

-- Per user and hour. A dashboard of twenty panels that refreshes every half minute asks 2400 times an hour.
CREATE QUOTA IF NOT EXISTS rootrank_reader KEYED BY user_name FOR INTERVAL 1 hour
    MAX queries = 10000, read_rows = 1000000000000, execution_time = 7200 TO rootrank_read;
