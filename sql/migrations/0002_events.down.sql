DROP VIEW IF EXISTS event_jobs;
DROP VIEW IF EXISTS job_aliases;
DROP VIEW IF EXISTS events_live;
DROP VIEW IF EXISTS events;
DROP TABLE IF EXISTS job_aliases_rows;
DROP TABLE IF EXISTS event_jobs_rows;
DROP TABLE IF EXISTS events_rows;
