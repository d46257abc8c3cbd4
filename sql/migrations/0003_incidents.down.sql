DROP VIEW IF EXISTS culprits;
DROP VIEW IF EXISTS chain_steps;
DROP VIEW IF EXISTS incidents_live;
DROP VIEW IF EXISTS incidents;
DROP VIEW IF EXISTS incident_revisions;
DROP TABLE IF EXISTS culprits_rows;
DROP TABLE IF EXISTS chain_steps_rows;
DROP TABLE IF EXISTS incident_revisions_rows;
