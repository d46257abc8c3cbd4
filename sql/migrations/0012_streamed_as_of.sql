-- A span that is streamed is told when it begins and again when it ends, and the later row replaces the earlier one. As
-- of a moment before its end was told it was open; when its begin was told is no longer known, and taken to be when it
-- began. Imports are as they were: their generations stay.
CREATE OR REPLACE VIEW fleet_spans_as_of AS
SELECT
    * EXCEPT (version)
    REPLACE (if(known_at <= {as_of:DateTime64(3, 'UTC')}, ended_at, NULL) AS ended_at,
        if(known_at <= {as_of:DateTime64(3, 'UTC')}, outcome, '') AS outcome)
FROM fleet_spans_rows FINAL
WHERE
    (
        known_at <= {as_of:DateTime64(3, 'UTC')}
        OR (generation = 0 AND toDateTime64(started_at, 3, 'UTC') <= {as_of:DateTime64(3, 'UTC')})
    )
    AND (run, run_id, cluster, source, generation) IN
    (
        SELECT run, run_id, cluster, source, max(generation)
        FROM fleet_spans_rows
        WHERE known_at <= {as_of:DateTime64(3, 'UTC')}
            OR (generation = 0 AND toDateTime64(started_at, 3, 'UTC') <= {as_of:DateTime64(3, 'UTC')})
        GROUP BY run, run_id, cluster, source
    )
SETTINGS do_not_merge_across_partitions_select_final = 1;
