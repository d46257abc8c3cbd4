-- Events of a day whose line was read again and did not give them again.
INSERT INTO rebuild_events_rows
SELECT * REPLACE (true AS is_gone, {version:UInt64} AS version)
FROM
(
    SELECT * FROM events_rows FINAL
    WHERE run = 'live' AND day = {day:Date} AND ({cluster:String} = '' OR cluster = {cluster:String}) AND NOT is_gone
        AND source != 'annotation'
        AND (run_id, cluster, reporter, event_id) NOT IN
            (SELECT run_id, cluster, reporter, event_id FROM rebuild_events_rows WHERE day = {day:Date})
        AND (run_id, cluster, reporter, source, generation, offset) IN
        (
            SELECT run_id, cluster, reporter, source, generation, offset FROM raw_lines
            WHERE run = 'live' AND day = {day:Date} AND ({cluster:String} = '' OR cluster = {cluster:String})
        )
)
