# Prints what Django reads as the user: lines of a kind and a value, percent-encoded.
import base64
import json
import sys
from urllib.parse import quote

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import re_path

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of a test")


def numbers(value):
    """What applications make of a number that a client wrote."""
    for number in (int, float):
        try:
            yield str(number(value))
        except (TypeError, ValueError):
            pass


def read(request):
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    basic = base64.b64decode(token.strip()).decode() if scheme.lower() == "basic" else None
    is_json = request.content_type == "application/json"
    body = json.loads(request.body) if is_json else None
    both = request.POST.get("user", request.GET.get("user"))
    lines = {
        "query": [request.GET.get("user"), *request.GET.getlist("user")],
        "cookie": [request.COOKIES.get("sid")],
        "header": [request.META.get("HTTP_X_USER")],
        "basic": [basic],
        "bearer": [token.strip()] if scheme.lower() == "bearer" else [],
        "form": request.POST.getlist("user"),
        "params": [both],
        "query-name": request.GET.getlist("user_name"),
        "cookie-name": [request.COOKIES.get("user_name")],
        "form-name": request.POST.getlist("user_name"),
        "cost": numbers(body.get("n") if isinstance(body, dict) else None),
        "amount": [each for n in request.POST.getlist("n") for each in numbers(n)],
        "json": [json.dumps(body["user"])] if isinstance(body, dict) and "user" in body else [],
    }
    pairs = [(kind, value) for kind, values in lines.items() for value in values]
    text = "".join(f"{kind} {quote(value, safe='')}\n" for kind, value in pairs if value is not None)
    return HttpResponse(text)


urlpatterns = [re_path("", read)]
execute_from_command_line(["manage", "runserver", "--noreload", f"127.0.0.1:{sys.argv[1]}"])
