-- u: hash fingerprint -> record of every pending URL, from its add to its end.
-- record = JSON [depth, queue, domain, url, redirects, seed, attempts, deliveries, visit, score, deaths, died with]; the last two only where there were any
-- Depth, queue and domain come first so that a pattern reads them: decoding the whole costs ten times as much.
local R_DEPTH, R_QUEUE, R_DOMAIN, R_ATTEMPTS, R_DELIVERIES, R_SCORE, R_DEATHS, R_DIED_WITH = 1, 2, 3, 7, 8, 10, 11, 12

local function depth_of(packed)
  return tonumber(string.match(packed, '^%[(%d+)'))
end

local function place_of(packed)
  return string.match(packed, '^%[%d+,"([^"]*)","([^"]*)"')
end
