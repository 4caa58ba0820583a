#!lua flags=allow-oom
-- log_command: append an entry to the log of operator commands, and drop the oldest beyond the newest ones. The ids are
-- 0-1, 0-2, ...: without a clock, and never one twice. Also while the engine is full: a purge must not go unlogged then.
-- KEYS  the log (a stream)
-- ARGV  how many entries stay, entry (JSON)
-- returns the number of the entry
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[1], '0-*', 'e', ARGV[2])
return tonumber(string.sub(id, 3))
