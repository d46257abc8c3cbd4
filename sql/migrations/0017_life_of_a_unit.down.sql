ALTER TABLE episode_days_rows DROP PROJECTION IF EXISTS by_unit;
