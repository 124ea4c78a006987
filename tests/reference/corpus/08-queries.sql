-- Parcels that were seen in a depot after they had been delivered: these are mistakes of the scanners.
WITH delivered AS (
    SELECT parcel_id, min(at) AS delivered_at
    FROM events
    WHERE kind = 'delivered'
    GROUP BY parcel_id
)
SELECT e.parcel_id, e.depot, e.at, d.delivered_at, e.at - d.delivered_at AS too_late
FROM events AS e
JOIN delivered AS d USING (parcel_id)
WHERE e.kind = 'scanned' AND e.at > d.delivered_at + interval '5 minutes'
ORDER BY too_late DESC
LIMIT 100;

CREATE INDEX CONCURRENTLY IF NOT EXISTS events_by_depot ON events (depot, at DESC) INCLUDE (parcel_id, kind);

