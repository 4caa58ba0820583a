#!lua flags=allow-oom
-- died: a session's process died while it worked on these URLs. Needs no fence: it is a fact, whoever reports it, and one
-- session's death counts once. k: hash fingerprint -> 'deaths session'; claim tells the owner of it.
-- KEYS  meta
-- ARGV  session that died, as how many deaths it counts, then fingerprints
-- returns {'COMMITTED', how many were noted}
local noted = 0
for i = 3, #ARGV do
  local deaths, session = string.match(call('HGET', P .. 'k', ARGV[i]) or '', '^(%d+) (.*)$')
  if session ~= ARGV[1] then
    call('HSET', P .. 'k', ARGV[i], ((tonumber(deaths) or 0) + tonumber(ARGV[2])) .. ' ' .. ARGV[1])
    noted = noted + 1
  end
end
return {'COMMITTED', noted}
