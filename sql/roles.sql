-- The read-only user of `rootrank sql`, Grafana and other readers. Run once, as an administrator, with a password
-- of your own; `rootrank` is the database name. An embedded engine has no users: its HTTP front enforces the same.
--
-- readonly = 2 lets a reader choose its own limits (Grafana sets max_execution_time on each query) but never write,
-- and never change `readonly` itself. No table function that reads files or opens sockets is granted.
CREATE ROLE IF NOT EXISTS rootrank_read;

GRANT SELECT, SHOW TABLES, SHOW COLUMNS ON rootrank.* TO rootrank_read;

CREATE SETTINGS PROFILE IF NOT EXISTS rootrank_reader SETTINGS
    readonly = 2,
    allow_ddl = 0,
    max_execution_time = 60 MAX 600,
    max_memory_usage = 4000000000 MAX 16000000000,
    max_result_rows = 1000000,
    result_overflow_mode = 'break';

CREATE USER IF NOT EXISTS rootrank_reader IDENTIFIED WITH sha256_password BY 'change-me'
    DEFAULT ROLE rootrank_read SETTINGS PROFILE 'rootrank_reader';

GRANT rootrank_read TO rootrank_reader;
