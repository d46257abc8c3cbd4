DROP TABLE IF EXISTS data_quality_rows;
DROP TABLE IF EXISTS failure_days_rows;
DROP TABLE IF EXISTS episode_days_rows;
DROP TABLE IF EXISTS exposure_days_rows;
DROP TABLE IF EXISTS fleet_builds_rows;
DROP TABLE IF EXISTS incident_corrections_rows;
DROP TABLE IF EXISTS job_attempts_rows;
DROP TABLE IF EXISTS fleet_spans_rows;
