DROP VIEW IF EXISTS placement;
DROP TABLE IF EXISTS placement_rows;
