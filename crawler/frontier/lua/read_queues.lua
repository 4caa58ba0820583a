#!lua flags=no-writes,allow-oom
-- read_queues: read records of queues, shared robots.txt of origins, the hosts of domains that a budget admitted, or the counts
-- of seeds and runs. Reads only.
-- KEYS  meta
-- ARGV  ReadArgs ('queues', 'robots', 'hosts' or 'counts'), then at most 256 names
-- returns for each queue its record (msgpack, see _queue.lua), for each origin its blob, for 'hosts' and a domain the number
--       of admitted hosts, for 'hosts' and 'domain label' 'yes' (see _admission.lua), for 'counts' and the number of a seed or a run's
--       id its counts (msgpack, see _counts.lua); '' for missing ones
local found = {}
for i = ReadArgs.size + 1, #ARGV do
  local name, value = ARGV[i], nil
  if ARGV[ReadArgs.kind] == 'robots' then
    value = compact_get('y', name) or ''
  elseif ARGV[ReadArgs.kind] == 'counts' then
    value = compact_get('e', name) or ''
  elseif ARGV[ReadArgs.kind] == 'hosts' then
    value = compact_get('n', name)
    if value == '' then value = 'yes' end
    value = value or ''
  else
    value = call('GET', ctx.prefix .. 'w:' .. name) or compact_get('h', name) or ''
  end
  found[i - ReadArgs.size] = value
end
return found
