#!lua flags=no-writes,allow-oom
-- url_states: the state of many URLs, one digit each. Reads only. It does not tell pending URLs from ended ones: these are
-- found by reading the queues.
-- KEYS  meta
-- ARGV  UrlStatesArgs, then at most 256 fingerprints
-- returns digits: 0 never seen, 2 committed and still in the log, 3 dead letter, 4 seen and none of these
local seen, digits = seen_set(ARGV[UrlStatesArgs.run]), {}
for i = UrlStatesArgs.size + 1, #ARGV do
  local fp = ARGV[i]
  if call('HEXISTS', ctx.prefix .. 'l', fp .. ':' .. ARGV[UrlStatesArgs.visit]) == 1 then digits[i - UrlStatesArgs.size] = '2'
  elseif call('HEXISTS', ctx.prefix .. 'dead', fp) == 1 then digits[i - UrlStatesArgs.size] = '3'
  elseif is_seen(seen, fp) then digits[i - UrlStatesArgs.size] = '4'
  else digits[i - UrlStatesArgs.size] = '0' end
end
return table.concat(digits)
