-- Whom those incidents blame.
INSERT INTO culprits_rows
    (run, run_id, cluster, incident_id, revision, place, class, node, pci_bus_id, confidence, version)
SELECT run, run_id, cluster, incident_id, revision, 1, class, culprit_nodes[1], culprit_gpus[1], 0.9, 1
FROM incident_revisions_rows
