DROP VIEW IF EXISTS otel_logs;
DROP VIEW IF EXISTS raw_lines_live;
DROP VIEW IF EXISTS raw_lines;
DROP TABLE IF EXISTS raw_lines_rows;
