-- wrk script: every answer is checked against its own request.
-- Arguments after "--": "call" and a file with one session id in each line; "create" (initialize); or "sessionless"
-- (tools/call of 2026-07-28).
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local function read_lines(name)
  local lines = {}
  for line in io.lines(name) do lines[#lines + 1] = line end
  return lines
end

local function has_session(headers)
  for name in pairs(headers) do
    if string.lower(name) == "mcp-session-id" then return true end
  end
  return false
end

function init(args)
  bad, good, first_bad, number, open = 0, 0, "", 100000000, {}
  local kind, eras = args[1], {""}
  local before = '{"jsonrpc":"2.0","id":'
  local between = ',"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello '
  local after = '"}}}'
  if kind == "call" then
    for place, session in ipairs(read_lines(args[2])) do
      eras[place] = "Mcp-Session-Id: " .. session .. "\r\nMCP-Protocol-Version: 2025-11-25\r\n"
    end
  elseif kind == "sessionless" then
    eras = {"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"}
    after = '"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"'
      .. ',"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}'
      .. ',"io.modelcontextprotocol/clientCapabilities":{}}}}'
  else
    between = ',"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}'
      .. ',"clientInfo":{"name":"bench","version":"'
    after = '"}}}'
  end
  local length = #before + 9 + #between + 9 + #after
  local heads = {}
  for place, era in ipairs(eras) do
    heads[place] = "POST /mcp HTTP/1.1\r\nHost: " .. wrk.headers["Host"]
      .. "\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n" .. era
      .. "Content-Length: " .. length .. "\r\n\r\n"
  end
  request = function()
    number = number + 1
    open[number] = true
    return heads[number % #heads + 1] .. before .. number .. between .. number .. after
  end
  response = function(status, headers, body)
    local id = tonumber(string.match(body, '"id": ?(%d+)'))
    local right = status == 200 and id and open[id]
    if kind == "create" then
      right = right and has_session(headers) and string.find(body, '"protocolVersion": ?"2025%-11%-25"')
    else
      right = right and string.find(body, '"text": ?"hello ' .. id .. '"')
    end
    if right then
      open[id] = nil
      good = good + 1
    else
      bad = bad + 1
      if first_bad == "" then first_bad = status .. " " .. string.sub(body, 1, 200) end
    end
  end
end

function done(summary, latency, requests)
  local good, bad, first_bad = 0, 0, ""
  for _, thread in ipairs(threads) do
    good = good + thread:get("good")
    bad = bad + thread:get("bad")
    first_bad = first_bad .. thread:get("first_bad")
  end
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"seconds":%.6f,"p50":%.1f,"p99":%.1f,"good":%d,"bad":%d,"errors":%d,"first_bad":"%s"}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), good, bad,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    string.gsub(first_bad, '[^%w %.:-]', "'")))
end
