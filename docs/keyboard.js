// What mdBook's theme lacks for the keyboard and for screen readers; a test looks for more.

document.getElementById("mdbook-menu-bar").role = "banner";

// The toggle of the contents is the label of a hidden box; a button is reached by Tab.
const box = document.getElementById("mdbook-sidebar-toggle-anchor");
const label = document.getElementById("mdbook-sidebar-toggle");
const toggle = document.createElement("button");
toggle.className = label.className;
toggle.title = label.title;
toggle.ariaLabel = label.title;
toggle.ariaExpanded = box.checked;
toggle.append(...label.childNodes);
toggle.addEventListener("click", () => label.click());
box.addEventListener("change", () => {
    toggle.ariaExpanded = box.checked;
});
label.after(toggle);
label.style.display = "none";

// What scrolls sideways can be reached by Tab.
function reachScrollable() {
    for (const area of document.querySelectorAll("pre > code, .table-wrapper")) {
        if (area.scrollWidth > area.clientWidth) {
            area.tabIndex = 0;
        } else {
            area.removeAttribute("tabindex");
        }
    }
}
reachScrollable();
addEventListener("resize", reachScrollable);
