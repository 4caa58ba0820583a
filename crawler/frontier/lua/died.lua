#!lua flags=allow-oom
-- died: these URLs had been started when a session's process died. Needs no fence: it is a fact, whoever reports it, and
-- one session's death counts once. Ended URLs are passed over.
-- KEYS  meta
-- ARGV  session that died, then fingerprints
-- returns {'COMMITTED', how many were noted}
--@include _fence _record
local noted = 0
for i = 2, #ARGV do
  local packed = call('HGET', P .. 'u', ARGV[i])
  if packed then
    local record = cjson.decode(packed)
    if record[R_DIED_WITH] ~= ARGV[1] then
      record[R_DEATHS], record[R_DIED_WITH] = (record[R_DEATHS] or 0) + 1, ARGV[1]
      call('HSET', P .. 'u', ARGV[i], cjson.encode(record))
      noted = noted + 1
    end
  end
end
return {'COMMITTED', noted}
