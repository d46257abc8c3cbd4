-- One unit's episodes over all days lie in one place of a second order of the same rows: by the first order, which is
-- that of rates, each day of it is in another granule. ClickHouse picks the projection by itself where a unit is asked for.
ALTER TABLE episode_days_rows ADD PROJECTION IF NOT EXISTS by_unit (SELECT *, build, unit_id ORDER BY unit);

ALTER TABLE episode_days_rows MATERIALIZE PROJECTION by_unit SETTINGS mutations_sync = 1;
