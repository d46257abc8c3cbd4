-- A day is kept from when it was built, as its row in fleet_builds is: the two go together. Counted from the day itself,
-- what is built of a replay or drill of older logs went at once, and the build that stood said that nothing was there.

ALTER TABLE exposure_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE episode_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE failure_days_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE data_quality_rows MODIFY TTL toDateTime(built_at) + toIntervalDay(if(run = 'live', 1825, 14));

ALTER TABLE exposure_days
    COMMENT COLUMN day 'the UTC day it is of',
    COMMENT COLUMN unit 'a GPU by UUID or serial number, a node by machine id or name',
    COMMENT COLUMN node 'the node a GPU sat in; of a node itself';

ALTER TABLE episode_days
    COMMENT COLUMN day 'the UTC day it is of',
    COMMENT COLUMN unit 'a GPU by UUID or serial number, else node/bus address; a node by machine id or name; empty: nobody';
