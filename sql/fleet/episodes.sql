-- Episodes that begin in [from_ns, to_ns), by unit and kind of error. Whether a line begins one depends on the line
-- before it and on what ended between the two, so the day before (back_ns) is read as well and counts for nothing.
-- On which days those lines were read, however late, is asked first, of the index of aligned times: `FINAL` makes no use
-- of it. The lines of units that moved or changed their cohort that day come one by one, with their time in `at_ns`.
WITH
    moving AS
    (
        SELECT unit
        FROM exposure_days_rows
        WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String} AND day = {day:Date}
            AND built_at = {built_at:DateTime64(3, 'UTC')}
        GROUP BY unit_kind, unit
        HAVING count() > 1
    ),
    lines AS
    (
        SELECT
            node, machine_id, boot_id, name, toUInt32OrNull(attributes['xid']) AS xid, count,
            toUnixTimestamp64Nano(ifNull(aligned_time,
                if(toUnixTimestamp64Nano(observed_time) > 0, observed_time, lo_time))) AS at,
            ifNull(subject_gpu_uuid, ifNull(subject_serial, '')) AS named, lower(ifNull(subject_pci_bus_id, '')) AS bus,
            scope = 'gpu' OR named != '' AS is_gpu
        FROM events
        WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
            AND day IN
            (
                SELECT DISTINCT day
                FROM events_rows
                WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
                    AND (day >= toDate(fromUnixTimestamp64Nano({from_ns:Int64} - {back_ns:Int64}, 'UTC')) - 1
                        OR day = '1970-01-01')
                    AND ifNull(aligned_time, if(toUnixTimestamp64Nano(observed_time) > 0, observed_time, lo_time))
                        BETWEEN fromUnixTimestamp64Nano({from_ns:Int64} - {back_ns:Int64}, 'UTC')
                            AND fromUnixTimestamp64Nano({to_ns:Int64} - 1, 'UTC')
            )
            AND (role IN ('cause', 'intermediate') OR name = 'gpu.xid')
            AND ifNull(aligned_time, if(toUnixTimestamp64Nano(observed_time) > 0, observed_time, lo_time))
                BETWEEN fromUnixTimestamp64Nano({from_ns:Int64} - {back_ns:Int64}, 'UTC')
                    AND fromUnixTimestamp64Nano({to_ns:Int64} - 1, 'UTC')
    ),
    -- Which GPU answers to a bus id, from when to when; spans call its node by machine id or by name.
    slots AS
    (
        SELECT
            node, lower(facts['pci_bus_id']) AS bus, unit, toUnixTimestamp64Nano(started_at) AS from_ns,
            ifNull(toUnixTimestamp64Nano(ended_at), 9223372036854775807) AS to_ns
        FROM fleet_spans
        WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
            AND unit_kind = 'gpu' AND kind IN ('installed', 'facts') AND facts['pci_bus_id'] != ''
        UNION ALL
        SELECT
            node, lower(assumeNotNull(pci_bus_id)), assumeNotNull(gpu_uuid), toUnixTimestamp64Nano(placement.started_at),
            ifNull(toUnixTimestamp64Nano(placement.ended_at), 9223372036854775807)
        FROM placement
        WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
            AND gpu_uuid != '' AND pci_bus_id != ''
    ),
    -- What ends a fault: the end of a span out of service, and the first word of a new boot.
    closings AS
    (
        SELECT place, groupArray((at, kind)) AS ends
        FROM
        (
            SELECT unit AS place, toUnixTimestamp64Nano(assumeNotNull(ended_at)) AS at, kind
            FROM fleet_spans
            WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
                AND ended_at IS NOT NULL AND at > {from_ns:Int64} - {back_ns:Int64} AND at < {to_ns:Int64}
                AND kind IN ('drain', 'repair', 'maintenance', 'upgrade', 'boot', 'reset')
            UNION ALL
            SELECT node AS place, min(at) AS at, 'boot' AS kind
            FROM lines
            WHERE boot_id != ''
            GROUP BY node, boot_id
            QUALIFY row_number() OVER (PARTITION BY node ORDER BY at) > 1
        )
        GROUP BY place
    ),
    placed AS
    (
        SELECT
            l.node AS node, l.machine_id AS machine_id, l.name AS name, l.xid AS xid, l.count AS count, l.at AS at,
            l.is_gpu AS is_gpu,
            multiIf(NOT l.is_gpu, l.node, l.named != '', l.named, m.unit != '' AND l.at < m.to_ns, m.unit,
                s.unit != '' AND l.at < s.to_ns, s.unit, concat(l.node, '/', l.bus)) AS unit
        FROM lines AS l
        ASOF LEFT JOIN slots AS s ON l.node = s.node AND l.bus = s.bus AND l.at >= s.from_ns
        ASOF LEFT JOIN slots AS m ON l.machine_id = m.node AND l.bus = m.bus AND l.at >= m.from_ns
    ),
    following AS
    (
        SELECT
            p.*, lagInFrame(toNullable(at)) OVER
            (
                PARTITION BY is_gpu, unit, name, xid ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
            ) AS before,
            indexOf({kinds:Array(String)}, concat(name, '/', ifNull(toString(xid), ''))) AS place,
            {silences_ns:Array(Int64)}[place] AS silence_ns, {closed_by:Array(Array(String))}[place] AS closers,
            arrayConcat(g.ends, n.ends, m.ends) AS ends
        FROM placed AS p
        LEFT JOIN closings AS g ON p.unit = g.place
        LEFT JOIN closings AS n ON if(p.is_gpu, p.node, '') = n.place
        LEFT JOIN closings AS m ON p.machine_id = m.place
    )
SELECT
    if(is_gpu, 'gpu', 'node') AS unit_kind, unit, any(node) AS last_node, any(machine_id) AS machine, name, xid,
    if(unit IN moving OR machine_id IN moving, at, 0) AS at_ns, sum(count) AS lines,
    countIf(isNull(before) OR is_closed OR at - before > silence_ns) AS episodes,
    sumForEach(arrayMap(w -> toUInt32(isNull(before) OR is_closed OR at - before > w * 1000000000),
        {curve_s:Array(Int64)})) AS by_window
FROM
(
    SELECT *, arrayExists(e -> e.1 > before AND e.1 <= at AND has(closers, e.2), ends) AS is_closed
    FROM following
    WHERE at >= {from_ns:Int64}
)
GROUP BY unit_kind, unit, name, xid, at_ns
ORDER BY unit_kind, unit, name, xid, at_ns
SETTINGS join_use_nulls = 0
