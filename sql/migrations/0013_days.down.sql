ALTER TABLE exposure_days_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE episode_days_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE failure_days_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
ALTER TABLE data_quality_rows MODIFY TTL day + toIntervalDay(if(run = 'live', 1825, 14));
