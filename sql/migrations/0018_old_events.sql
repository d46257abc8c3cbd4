-- What an agent finds of the past at first sight is recorded and makes no incident: whoever looks for one has to see that.
ALTER TABLE events_rows
    ADD COLUMN IF NOT EXISTS alerts Bool DEFAULT true
        COMMENT 'false: more than 15 minutes old when the agent first saw its source, never the reason of an incident';

CREATE VIEW IF NOT EXISTS old_events AS
SELECT run, run_id, cluster, event_id, name, count
FROM events_rows FINAL
WHERE NOT is_gone AND NOT alerts AND role != 'noise'
SETTINGS do_not_merge_across_partitions_select_final = 1;

ALTER TABLE old_events
    MODIFY COMMENT 'Events more than 15 minutes old when the agent first saw their source: never the reason of an incident.';
