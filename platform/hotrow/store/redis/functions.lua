#!lua name=NAME
-- Functions of Hotrow's stores (docs/formats.md, "In Redis"). NAME is put in when they are loaded.

-- keys: a marker, then pages of its shard, each once. args: bytes of a record, then for each page
-- its new records, each key once. Writes the records that are newer than what lies there, and
-- returns how many. A record is key (8 bytes) | version (8) | row.
local function put(keys, args)
  local size = tonumber(args[1])
  if redis.call('EXISTS', keys[1]) == 0 then
    return redis.error_reply('HOTROWLOST the marker ' .. keys[1] .. ' is missing')
  end
  local written = 0
  for number = 2, #keys do
    local name = keys[number]
    local records = args[number]
    local page = redis.call('GET', name) or ''
    local new = {}
    local changed = false
    for from = 1, #records, size do
      local key = string.sub(records, from, from + 7)
      -- The bytes of a key may also stand inside a row, or across two records.
      local at = string.find(page, key, 1, true)
      while at and (at - 1) % size ~= 0 do
        at = string.find(page, key, at + 1, true)
      end
      local record = string.sub(records, from, from + size - 1)
      if not at then
        new[#new + 1] = record
        written = written + 1
      else
        -- Lua's numbers are doubles, so a version is compared in halves; its highest bit says
        -- only that the row is gone.
        local old_low, old_high = struct.unpack('<I4I4', page, at + 8)
        local low, high = struct.unpack('<I4I4', record, 9)
        old_high, high = old_high % 2147483648, high % 2147483648
        if high > old_high or (high == old_high and low > old_low) then
          redis.call('SETRANGE', name, at - 1, record)
          changed = true
          written = written + 1
        end
      end
    end
    if #new > 0 then
      -- APPEND would leave as much room behind the page as it is long, for ever.
      if changed then
        page = redis.call('GET', name)
      end
      redis.call('SET', name, page .. table.concat(new))
    end
  end
  return written
end

-- keys: the control records. args: for each record its name; the text that it should have, after
-- '=', or '': it should not be there; the new text, after '=', or '': it is removed. Returns 1: all
-- were as expected and are changed; 2: all are already as they are to be; 0: neither, and nothing
-- was changed.
local function swap(keys, args)
  local expected, already = true, true
  for i = 1, #args, 3 do
    local now = redis.call('HGET', keys[1], args[i])
    now = now and '=' .. now or ''
    expected = expected and now == args[i + 1]
    already = already and now == args[i + 2]
  end
  if not expected then
    return already and 2 or 0
  end
  for i = 1, #args, 3 do
    if args[i + 2] == '' then
      redis.call('HDEL', keys[1], args[i])
    else
      redis.call('HSET', keys[1], args[i], string.sub(args[i + 2], 2))
    end
  end
  return 1
end

-- keys: markers of shards. args: a version and the lowest watermark that it may follow, 8 bytes
-- each. Those that are there get the version as their watermark, unless theirs is newer or lower.
local function mark(keys, args)
  local low, high = struct.unpack('<I4I4', args[1])
  local least_low, least_high = struct.unpack('<I4I4', args[2])
  for _, key in ipairs(keys) do
    local old = redis.call('HGET', key, 'wm')
    if old then
      local old_low, old_high = struct.unpack('<I4I4', old)
      local follows = old_high > least_high or (old_high == least_high and old_low >= least_low)
      if follows and (high > old_high or (high == old_high and low > old_low)) then
        redis.call('HSET', key, 'wm', args[1])
      end
    end
  end
  return redis.status_reply('OK')
end

redis.register_function('NAME_put', put)
redis.register_function('NAME_mark', mark)
-- Also in a full store, so that generations can be deleted there.
redis.register_function{function_name = 'NAME_swap', callback = swap, flags = {'allow-oom'}}
