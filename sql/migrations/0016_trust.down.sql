DROP VIEW IF EXISTS unverified;
DROP VIEW IF EXISTS releases;
DROP TABLE IF EXISTS releases_rows;
DROP TABLE IF EXISTS unverified_rows;
