#!lua flags=no-writes,allow-oom
-- url_states: the state of many URLs, one digit each. Reads only. It does not tell pending URLs from ended ones: these are
-- found by reading the queues.
-- KEYS  meta
-- ARGV  run, visit, then at most 256 fingerprints
-- returns digits: 0 never seen, 2 committed and still in the log, 3 dead letter, 4 seen and none of these
local seen, digits = seen_set(ARGV[1]), {}
for i = 3, #ARGV do
  local fp = ARGV[i]
  if call('HEXISTS', ctx.prefix .. 'l', fp .. ':' .. ARGV[2]) == 1 then digits[i - 2] = '2'
  elseif call('HEXISTS', ctx.prefix .. 'dead', fp) == 1 then digits[i - 2] = '3'
  elseif is_seen(seen, fp) then digits[i - 2] = '4'
  else digits[i - 2] = '0' end
end
return table.concat(digits)
