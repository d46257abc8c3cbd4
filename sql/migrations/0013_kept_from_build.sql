-- A day is kept from when it was built, as its row in fleet_builds is: the two go together. Counted from the day itself,
-- what is built of a replay or drill of older logs went at once, and the build that stood said that nothing was there.

ALTER TABLE exposure_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE episode_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE failure_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE data_quality_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));
