CREATE SOURCE buses
  FROM 'examples/data/buses.csv.gz'
  WITH (key = 'vehicle_id', event_time = 'timestamp');
CREATE VIEW moving AS
  SELECT *
  FROM LATEST(buses)
  WHERE speed > 0;
CREATE MATERIALIZED VIEW routes AS
  SELECT route_id, COUNT(*) AS buses, ROUND(AVG(speed), 2) AS speed
  FROM moving
  GROUP BY route_id;
