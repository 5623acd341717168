CREATE SOURCE buses
  FROM 'examples/data/buses.csv.gz'
  WITH (key = 'vehicle_id', event_time = 'timestamp');
CREATE MATERIALIZED VIEW routes AS
  SELECT route_id, COUNT(*) AS buses, ROUND(AVG(speed), 2) AS speed
  FROM LATEST(buses)
  WHERE speed > 0
  GROUP BY route_id;
CREATE MATERIALIZED VIEW silent AS
  SELECT vehicle_id, route_id, timestamp
  FROM LATEST(buses)
  WHERE timestamp < NOW() - INTERVAL '3' MINUTES;
