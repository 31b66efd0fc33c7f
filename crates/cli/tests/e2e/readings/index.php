<?php // Prints what PHP reads as the user: lines of a kind and a value, percent-encoded.
header("Content-Type: text/plain");
$authorization = $_SERVER["HTTP_AUTHORIZATION"] ?? "";
$basic = isset($_SERVER["PHP_AUTH_USER"]) ? $_SERVER["PHP_AUTH_USER"] . ":" . ($_SERVER["PHP_AUTH_PW"] ?? "") : null;
$is_json = str_starts_with($_SERVER["CONTENT_TYPE"] ?? "", "application/json");
$body = $is_json ? json_decode(file_get_contents("php://input"), true) : null;
// What applications make of a number that a client wrote.
$numbers = fn($value) => is_scalar($value) ? [(int) $value, (float) $value] : [];
$lines = [
    "query" => [$_GET["user"] ?? null],
    "cookie" => [$_COOKIE["sid"] ?? null],
    "header" => [$_SERVER["HTTP_X_USER"] ?? null],
    "basic" => [$basic],
    "bearer" => [preg_match('/^bearer +(.*)$/i', $authorization, $found) ? $found[1] : null],
    "form" => [$_POST["user"] ?? null],
    "params" => [$_REQUEST["user"] ?? null],
    "query-name" => [$_GET["user_name"] ?? null],
    "cookie-name" => [$_COOKIE["user_name"] ?? null],
    "form-name" => [$_POST["user_name"] ?? null],
    "cost" => $numbers($body["n"] ?? null),
    "amount" => $numbers($_REQUEST["n"] ?? null),
    "json" => isset($body["user"]) ? [json_encode($body["user"])] : [],
];
// The values of a list; a map, whose keys are names, is no value.
$print = function ($kind, $value) use (&$print) {
    if (is_array($value)) {
        if (array_filter(array_keys($value), "is_string") === []) {
            foreach ($value as $each) {
                $print($kind, $each);
            }
        }
    } elseif ($value !== null) {
        echo $kind, " ", rawurlencode($value), "\n";
    }
};
foreach ($lines as $kind => $value) {
    $print($kind, $value);
}
