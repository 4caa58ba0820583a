#!lua flags=allow-oom
-- log_command: append an entry to the log of operator commands. The ids are 0-1, 0-2, ...: without a clock, and never
-- one twice. Also while the engine is full: a purge must not go unlogged then.
-- A command that the same person gave last on the same target replaces that entry, with one more in `times`. A repeat of the
-- same call, as after a lost reply, has the same `request` and changes nothing.
-- KEYS  the log (a stream)
-- ARGV  LogArgs: the entry (JSON), how many of the newest entries are looked at
-- returns the number of the entry, how many entries there are
local text = ARGV[LogArgs.entry]
local entry = cjson.decode(text)
for _, one in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[LogArgs.looked_at])) do
  local old = cjson.decode(one[2][2])
  if old.request == entry.request then return {tonumber(string.sub(one[1], 3)), redis.call('XLEN', KEYS[1])} end
  if old.target == entry.target then
    if old.who == entry.who and old.via == entry.via and old.action == entry.action and old.detail == entry.detail then
      entry.times = (old.times or 1) + 1
      entry.first_at = old.first_at or old.at
      text = cjson.encode(entry)
      redis.call('XDEL', KEYS[1], one[1])
    end
    break
  end
end
local id = redis.call('XADD', KEYS[1], '0-*', 'e', text)
return {tonumber(string.sub(id, 3)), redis.call('XLEN', KEYS[1])}
