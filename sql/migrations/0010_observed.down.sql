DROP VIEW IF EXISTS observed;
DROP TABLE IF EXISTS observed_minutes_rows;
