# Prints what Rack reads as the user: lines of a kind and a value, percent-encoded.
require "erb"
require "json"
require "rack"
require "rack/handler/webrick"

# The values of a list; a map, whose keys are names, is no value.
leaves = lambda do |value|
  case value
  when Hash then value.keys.all?(/\A\d+\z/) ? value.values.flat_map(&leaves) : []
  when Array then value.flat_map(&leaves)
  when nil then []
  else [value]
  end
end
# What applications make of a number that a client wrote.
numbers = lambda do |value|
  leaves.(value).flat_map { |each| [(Integer(each) rescue nil), (Float(each) rescue nil), (each.to_i rescue nil)] }
end
application = lambda do |environment|
  request = Rack::Request.new(environment)
  basic = Rack::Auth::Basic::Request.new(environment)
  authorization = environment["HTTP_AUTHORIZATION"].to_s
  is_json = request.media_type == "application/json"
  body = is_json ? JSON.parse(request.body.read) : {}
  lines = {
    "query" => request.GET["user"],
    "cookie" => request.cookies["sid"],
    "header" => environment["HTTP_X_USER"],
    "basic" => (basic.credentials.join(":") if basic.provided? && basic.basic?),
    "bearer" => authorization[/\Abearer +(.*)\z/i, 1],
    "form" => (request.POST["user"] unless is_json),
    "params" => (request.params["user"] unless is_json),
    "query-name" => request.GET["user_name"],
    "cookie-name" => request.cookies["user_name"],
    "form-name" => (request.POST["user_name"] unless is_json),
    "cost" => (numbers.(body["n"]) if body.is_a?(Hash)),
    "amount" => (numbers.(request.params["n"]) unless is_json),
    "json" => (JSON.generate(body["user"]) if is_json && body.key?("user")),
  }
  encoded = lines.flat_map { |kind, values| leaves.(values).map { |value| "#{kind} #{ERB::Util.url_encode(value)}\n" } }
  [200, { "Content-Type" => "text/plain" }, [encoded.join]]
end
silent = WEBrick::Log.new(File::NULL)
Rack::Handler::WEBrick.run(application, Host: "127.0.0.1", Port: Integer(ARGV[0]), Logger: silent, AccessLog: [])
